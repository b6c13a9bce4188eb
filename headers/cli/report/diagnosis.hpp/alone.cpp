#include "/work/main/cli/report/diagnosis.hpp"
