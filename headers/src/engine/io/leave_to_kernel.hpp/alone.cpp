#include "/work/main/src/engine/io/leave_to_kernel.hpp"
