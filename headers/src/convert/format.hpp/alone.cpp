#include "/work/main/src/convert/format.hpp"
