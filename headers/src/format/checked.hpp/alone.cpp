#include "/work/main/src/format/checked.hpp"
