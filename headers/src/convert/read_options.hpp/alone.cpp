#include "/work/main/src/convert/read_options.hpp"
