#include "/work/main/src/api/c/c_handles.hpp"
