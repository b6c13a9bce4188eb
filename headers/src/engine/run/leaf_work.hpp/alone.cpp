#include "/work/main/src/engine/run/leaf_work.hpp"
