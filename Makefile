# nccl-net-r2. Everything that is built goes to $(B). Layers: plugin/README.md.
B       ?= build
CC      ?= gcc
VERSION := 0.1.0
GIT     := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib

WARN    := -Wall -Wextra -Werror -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wno-unused-parameter \
           -Wno-missing-field-initializers
OPT     ?= -O2 -g
SAN     ?=
CPPBASE := -D_GNU_SOURCE -DR2_VERSION='"$(VERSION)"' -DR2_GIT='"$(GIT)"' -I. -Iplugin
CFLAGS_ALL := -std=gnu17 $(OPT) $(WARN) -fvisibility=hidden -fPIC -fno-strict-aliasing -pthread $(CPPBASE) $(SAN) $(CFLAGS)
LDFLAGS_ALL := -pthread $(SAN) $(LDFLAGS)

CORE_SRC  := $(wildcard plugin/*.c plugin/ib_transport/*.c plugin/failover/*.c plugin/probe/*.c plugin/balance/*.c topo/*.c)
MODEL_SRC := $(wildcard tests/fabric/model/*.c tests/fabric/verbs/*.c)
INPROC_SRC := $(wildcard tests/fabric/inproc/*.c)
SHM_SRC   := $(wildcard tests/fabric/shm/*.c)
CLI_SRC   := $(wildcard tests/fabric/cli/*.c)
PERF_SRC  := $(wildcard tools/r2_perf/*.c)
SIM_SRC   := $(wildcard tests/sim/*.c)
SUPPORT_SRC := $(wildcard tests/support/*.c)
UNIT_SRC  := $(wildcard tests/unit/test_*.c)
ABI_SRC   := $(wildcard tests/abi/test_*.c)

# Objects: $(B)/obj/ for the product, $(B)/tobj/ for test builds of the plugin, in which single protocol rules can be
# switched off (R2_TEST_RULES): the product never contains those switches.
obj   = $(patsubst %.c,$(B)/obj/%.o,$(1))
tobj  = $(patsubst %.c,$(B)/tobj/%.o,$(1))

PLUGIN   := $(B)/libnccl-net-r2.so
DROPIN   := $(B)/softfab-lib/libibverbs.so.1
UNIT_BIN := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(UNIT_SRC))
ABI_BIN  := $(patsubst tests/abi/%.c,$(B)/tests/abi/%,$(ABI_SRC))

BUILD_TARGETS := $(PLUGIN) $(B)/libnccl-net.so
ifneq ($(SHM_SRC),)
BUILD_TARGETS += $(DROPIN)
endif
ifneq ($(CLI_SRC),)
BUILD_TARGETS += $(B)/softfab
endif
ifneq ($(PERF_SRC),)
BUILD_TARGETS += $(B)/r2_perf
endif

.PHONY: all deps tests check check-asan check-tsan check-layers demo bench soak install install-default uninstall clean format
all: $(BUILD_TARGETS)

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(B)/tobj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -DR2_TEST_RULES=1 -MMD -MP -c $< -o $@
-include $(shell find $(B) -name '*.d' 2>/dev/null)

$(PLUGIN): $(call obj,$(CORE_SRC)) plugin/r2_exports.map
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,libnccl-net-r2.so -Wl,-z,nodelete -Wl,-z,defs \
	  -Wl,--as-needed -Wl,--build-id -Wl,--version-script=plugin/r2_exports.map
	mv $@.tmp $@
$(B)/libnccl-net.so: $(PLUGIN)
	ln -sf libnccl-net-r2.so $@

$(B)/libr2core.a: $(call tobj,$(CORE_SRC))
	rm -f $@; ar rcs $@ $^
$(B)/libfabmodel.a: $(call obj,$(MODEL_SRC) $(INPROC_SRC) $(filter tests/fabric/shm/seg_%.c,$(SHM_SRC)))
	rm -f $@; ar rcs $@ $^
$(B)/libtestsupport.a: $(call tobj,$(SUPPORT_SRC))
	rm -f $@; ar rcs $@ $^

$(DROPIN): $(call obj,$(MODEL_SRC) $(SHM_SRC)) tests/fabric/shm/libibverbs.map
	@mkdir -p $(@D)
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,libibverbs.so.1 -Wl,-z,nodelete -Wl,-z,defs \
	  -Wl,--version-script=tests/fabric/shm/libibverbs.map
	mv $@.tmp $@
	ln -sf libibverbs.so.1 $(@D)/libibverbs.so
# The command shares the segment code and the text forms (not the ibv_* entry points) with the drop-in.
SHM_SHARED := $(filter tests/fabric/shm/seg_%.c,$(SHM_SRC)) tests/fabric/model/fab_desc.c tests/fabric/model/fab_fault.c
$(B)/softfab: $(call obj,$(CLI_SRC) $(SHM_SHARED))
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
# A verbs program that breaks the fabric below itself (tests/e2e).
$(B)/softfab_probe: $(call obj,tests/e2e/softfab_probe.c tests/e2e/softfab_probe_end.c $(SHM_SHARED)) $(DROPIN)
	$(CC) -o $@ $(filter %.o,$^) -L$(B)/softfab-lib -libverbs $(LDFLAGS_ALL)
$(B)/r2_perf: $(call obj,$(PERF_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl -lm
# A plugin of another make, right or wrong on demand: what r2_perf itself is tested with.
$(B)/tests/libnccl-net-tcptest.so: $(call obj,tests/support/tcp_plugin/tcp_plugin.c)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,libnccl-net-tcptest.so -Wl,-z,defs

TESTLIBS := $(B)/libr2core.a $(B)/libtestsupport.a $(B)/libfabmodel.a
$(B)/tests/unit/%: $(B)/tobj/tests/unit/%.o $(TESTLIBS)
	@mkdir -p $(@D)
	$(CC) -o $@ $< -Wl,--start-group $(TESTLIBS) -Wl,--end-group $(LDFLAGS_ALL) -lcheck -lsubunit -lm -lrt -ldl
$(B)/tests/abi/%: $(B)/tobj/tests/abi/%.o $(B)/libtestsupport.a
	@mkdir -p $(@D)
	$(CC) -o $@ $< $(B)/libtestsupport.a $(LDFLAGS_ALL) -lcheck -lsubunit -lm -lrt -ldl
$(B)/r2_sim: $(call tobj,$(SIM_SRC)) $(TESTLIBS)
	$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(TESTLIBS) -Wl,--end-group $(LDFLAGS_ALL) -lm -ldl

clean:
	rm -rf $(B)
format:
	clang-format -i $$(git ls-files '*.c' '*.h')
