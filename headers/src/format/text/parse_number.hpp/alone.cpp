#include "/work/main/src/format/text/parse_number.hpp"
