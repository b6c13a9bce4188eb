#include "engine/buffer_pool.hpp"
