#include "/work/main/src/engine/comm/equal_on_all.hpp"
