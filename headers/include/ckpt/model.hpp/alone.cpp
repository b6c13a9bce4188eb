#include "/work/main/include/ckpt/model.hpp"
