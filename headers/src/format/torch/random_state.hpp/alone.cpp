#include "/work/main/src/format/torch/random_state.hpp"
