#include "/work/main/src/format/text/relative_path.hpp"
