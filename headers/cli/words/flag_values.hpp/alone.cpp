#include "/work/main/cli/words/flag_values.hpp"
