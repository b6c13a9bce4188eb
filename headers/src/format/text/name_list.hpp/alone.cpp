#include "/work/main/src/format/text/name_list.hpp"
