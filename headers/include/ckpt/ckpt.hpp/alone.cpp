#include "/work/main/include/ckpt/ckpt.hpp"
