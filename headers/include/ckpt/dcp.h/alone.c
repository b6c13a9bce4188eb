#include "/work/main/include/ckpt/dcp.h"
