#include "engine/run.hpp"
