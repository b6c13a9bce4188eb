#include "/work/main/include/ckpt/comm.h"
