#include "/work/main/src/format/torch/pickle_cursor.hpp"
