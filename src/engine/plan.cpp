#include "engine/plan.hpp"
