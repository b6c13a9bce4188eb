#include "/work/main/src/format/result.hpp"
