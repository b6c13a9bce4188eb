#include "convert/format.hpp"
