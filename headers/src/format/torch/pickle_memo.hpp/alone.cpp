#include "/work/main/src/format/torch/pickle_memo.hpp"
