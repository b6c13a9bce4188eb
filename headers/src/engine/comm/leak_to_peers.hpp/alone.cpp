#include "/work/main/src/engine/comm/leak_to_peers.hpp"
