#include "/work/main/include/ckpt/ckpt.h"
