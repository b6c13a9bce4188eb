#include "/work/main/include/ckpt/offload.h"
