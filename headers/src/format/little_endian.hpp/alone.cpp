#include "/work/main/src/format/little_endian.hpp"
