#include "engine/comm.hpp"
