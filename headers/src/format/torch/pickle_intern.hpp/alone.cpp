#include "/work/main/src/format/torch/pickle_intern.hpp"
