#include "/work/main/src/format/model/finding_error.hpp"
