#include "engine/io.hpp"
