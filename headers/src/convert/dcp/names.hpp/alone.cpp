#include "/work/main/src/convert/dcp/names.hpp"
