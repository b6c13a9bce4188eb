#include "/work/main/src/api/phase_times.hpp"
