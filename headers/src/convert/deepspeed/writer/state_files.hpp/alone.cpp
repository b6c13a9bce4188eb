#include "/work/main/src/convert/deepspeed/writer/state_files.hpp"
