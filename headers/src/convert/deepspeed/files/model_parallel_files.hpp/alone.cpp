#include "/work/main/src/convert/deepspeed/files/model_parallel_files.hpp"
