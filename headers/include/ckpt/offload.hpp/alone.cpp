#include "/work/main/include/ckpt/offload.hpp"
