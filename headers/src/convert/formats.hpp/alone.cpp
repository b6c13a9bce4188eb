#include "/work/main/src/convert/formats.hpp"
