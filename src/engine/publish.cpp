#include "engine/publish.hpp"
