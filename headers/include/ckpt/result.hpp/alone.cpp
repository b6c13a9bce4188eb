#include "/work/main/include/ckpt/result.hpp"
