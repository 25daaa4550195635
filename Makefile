# nccl-net-r2. Everything that is built goes to $(B). Folders: docs/architecture.md.
B       ?= build
ifeq ($(origin CC),default)
CC      := gcc
endif
VERSION := $(shell cat VERSION)
# In a tree that `make dist` packed, or `git archive`, the commit stands in a file; a git around such a tree is another project's.
PACKED  := $(shell grep -v Format packaging/commit | cut -c1-12)
GIT     := $(or $(PACKED),$(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown))
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib

WARN    := -Wall -Wextra -Werror -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wno-unused-parameter \
           -Wno-missing-field-initializers
OPT     ?= -O2 -g
SAN     ?=
CPPBASE := -D_GNU_SOURCE -DR2_VERSION='"$(VERSION)"' -DR2_GIT='"$(GIT)"' -I. -Iplugin
# A product and a sum are rounded one after the other on every machine: what is planned and simulated is the same everywhere.
CFLAGS_ALL := -std=gnu17 $(OPT) $(WARN) -fvisibility=hidden -fPIC -fno-strict-aliasing -ffp-contract=off -pthread $(CPPBASE) $(SAN) $(CFLAGS)
LDFLAGS_ALL := -pthread $(SAN) $(LDFLAGS)

# hwloc is a module of its own.
TOPO_SRC  := $(filter-out topo/topo_hwloc.c,$(wildcard topo/*.c))
# The folders of the plugin, from bottom to top; oob/mpi is a module of its own, and so are hwloc's part of topo, and coll, with planner and place
# (docs/collectives.md).
FOLDERS   := $(filter-out ../topo oob/mpi planner place coll,$(shell sed -n '/^[a-z.]/p' plugin/folders))
CORE_SRC  := $(wildcard $(patsubst %,plugin/%/*.c,$(FOLDERS))) $(TOPO_SRC)
MODEL_SRC := $(wildcard tests/fabric/model/*.c tests/fabric/verbs/*.c)
INPROC_SRC := $(wildcard tests/fabric/inproc/*.c)
SHM_SRC   := $(wildcard tests/fabric/shm/*.c)
CLI_SRC   := $(wildcard tests/fabric/cli/*.c)
# What a tool says of a wrong command line.
ARGS_SRC  := tools/shared/args.c plugin/base/r2_conf_file.c
# Statistics of many hosts, beside each other.
SOURCES_SRC := $(wildcard tools/shared/sources*.c) tools/shared/json_in.c plugin/telemetry/r2_stat_read.c plugin/telemetry/r2_band.c plugin/base/r2_hist.c plugin/base/r2_rundir.c
PERF_SRC  := $(wildcard tools/r2_perf/*.c tools/schedule/*.c plugin/planner/*.c) tools/shared/svg.c $(ARGS_SRC) plugin/base/r2_json.c \
             plugin/telemetry/r2_stat_read.c plugin/telemetry/r2_band.c plugin/telemetry/r2_event.c plugin/base/r2_hist.c plugin/base/r2_rundir.c plugin/base/r2_fsize.c
# The doctor of r2_config looks at options, NICs and interfaces with the plugin's own code.
CONFIG_SRC := $(wildcard tools/r2_config/*.c) tools/shared/args.c plugin/base/r2_json.c tools/r2_perf/abi_view.c plugin/base/r2_config.c plugin/base/r2_config_names.c plugin/base/r2_conf_file.c plugin/base/r2_log.c \
              plugin/oob/oob_ifsel.c plugin/base/r2_rundir.c plugin/base/r2_symbols.c plugin/base/r2_pages.c plugin/nccl/r2_init_texts.c topo/topo_source.c \
              $(addprefix plugin/ib_transport/verbs/ib_,verbs.c open.c device.c gid.c hca.c lag.c sysfs.c speed.c) plugin/ib_transport/ib_path.c plugin/ib_transport/ib_rc.c $(addprefix plugin/ib_transport/ib_,way.c way_port.c way_file.c way_load.c) plugin/probe/probe_qp.c
CTL_SRC   := $(wildcard tools/r2_ctl/*.c) $(ARGS_SRC) plugin/base/r2_json.c plugin/base/r2_host_registry.c plugin/base/r2_host_registry_rows.c plugin/base/r2_rundir.c plugin/base/r2_fsize.c \
             plugin/base/r2_symbols.c plugin/ib_transport/verbs/ib_verbs.c
STAT_SRC  := $(wildcard tools/r2_stat/*.c) tools/shared/args.c tools/shared/stat_nic.c plugin/base/r2_json.c plugin/base/r2_hist.c plugin/telemetry/r2_band.c plugin/telemetry/r2_nic_history.c plugin/telemetry/r2_nic_file.c plugin/telemetry/r2_stat_read.c plugin/base/r2_rundir.c plugin/base/r2_fsize.c plugin/telemetry/r2_event.c \
             plugin/base/r2_config.c plugin/base/r2_config_names.c plugin/base/r2_conf_file.c plugin/base/r2_log.c plugin/probe/probe_line.c
PLANNER_SRC := $(wildcard plugin/planner/*.c)
PLACE_SRC := $(wildcard plugin/place/*.c)
COLL_SRC  := $(wildcard plugin/coll/*.c)
# What libr2coll.so has of the plugin's.
COLL_OWN  := $(COLL_SRC) $(PLANNER_SRC) $(PLACE_SRC) $(wildcard plugin/oob/*.c plugin/oob/tcp/*.c plugin/base/*.c)
TOPO_TOOL_SRC := $(wildcard tools/r2_topo/*.c) tools/shared/svg.c $(ARGS_SRC) plugin/base/r2_json.c $(TOPO_SRC)
PLAN_TOOL_SRC := $(wildcard tools/r2_plan/*.c tools/schedule/*.c) tools/shared/svg.c $(SOURCES_SRC) tools/shared/stat_nic.c $(ARGS_SRC) tools/r2_perf/util.c plugin/base/r2_json.c $(PLANNER_SRC)
# r2_report has the runbook in it.
REPORT_SRC := $(wildcard tools/r2_report/*.c) tools/shared/svg.c tools/shared/json_in.c $(ARGS_SRC) plugin/telemetry/r2_stat_read.c plugin/telemetry/r2_traffic_read.c plugin/base/r2_hist.c plugin/base/r2_rundir.c
DIAG_SRC  := $(wildcard tools/r2_diag/*.c) tools/shared/svg.c $(SOURCES_SRC) $(ARGS_SRC) plugin/base/r2_json.c
PAPER_SRC := $(wildcard tests/bench/paper*.c) $(wildcard tools/schedule/*.c) tools/r2_plan/job.c tools/shared/svg.c tools/r2_perf/util.c $(PLANNER_SRC)
# Where Open MPI is installed: the MPI backend of the out-of-band channel, a module of its own.
MPI_CFLAGS := $(shell mpicc --showme:compile 2>/dev/null)
MPI_LIBS   := $(shell mpicc --showme:link 2>/dev/null)
OOB_MPI_SRC := $(wildcard plugin/oob/mpi/*.c) plugin/oob/oob_wire.c plugin/base/r2_siphash.c
# Where hwloc is installed: the other source of the topology, likewise.
HWLOC_LIBS := $(shell printf '\043include <hwloc.h>\n' | $(CC) -E - >/dev/null 2>&1 && echo -lhwloc)
HWLOC_SRC  := topo/topo_hwloc.c topo/topo.c topo/topo_finish.c
SIM_SRC   := $(wildcard tests/sim/*.c)
SOAK_SRC  := $(wildcard tests/soak/*.c)
MATRIX_SRC := $(wildcard tests/matrix/*.c)
SUPPORT_SRC := $(wildcard tests/support/*.c)
# In folders as the plugin has them; what is built lies in one, since no two have the same name.
UNIT_SRC  := $(sort $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
ABI_SRC   := $(wildcard tests/abi/test_*.c)
WATCH_SRC := $(wildcard tests/lab/verbs_*.c)
LAB_SRC   := $(wildcard tests/lab/lab_*.c)
FUZZ_SRC  := $(wildcard tests/fuzz/*.c)
GPU_SRC   := $(wildcard tests/gpu/*.c)
FAKE_CUDA_SRC := $(wildcard tests/gpu/fake/fake_cuda*.c)
# Real NCCL on a stand-in for CUDA (tests/nccl): where the CUDA toolkit's headers are. CUDA=DIR for another toolkit than nvcc's.
CUDA      ?= $(eval CUDA := $(shell for n in $$(which -a nvcc 2>/dev/null); do d=$$(dirname $$(dirname $$(readlink -f $$n))); [ -f $$d/include/nccl.h ] && [ -f $$d/include/cuda.h ] && echo $$d && break; done))$(CUDA)
STANDIN_RELEASES := 222 223 224 225 226 227 228 229 230
# CUDA's runtime, what is behind it, and its driver serve every release; kernels, and what hands them to the runtime, one.
CUDART_SRC  := $(wildcard tests/nccl/standin/gpu_*.c tests/nccl/standin/runtime*.c)
STANDIN_KERNEL_SRC := $(wildcard tests/nccl/standin/kernel_*.c)
STANDIN_RELEASE_SRC := $(STANDIN_KERNEL_SRC) tests/nccl/standin/attach.c
STANDIN_SRC := $(filter-out %/nvml.c $(CUDART_SRC) $(STANDIN_RELEASE_SRC),$(wildcard tests/nccl/standin/*.c))
STANDIN_TEST_SRC := $(wildcard tests/nccl/unit/test_*.c)
# Pure: they want neither CUDA's headers nor NCCL.
STANDIN_TESTS := $(foreach r,$(STANDIN_RELEASES),$(patsubst tests/nccl/unit/%.c,$(B)/nccl-standin/$(r)/%,$(STANDIN_TEST_SRC)))
NVML_SRC  := tests/nccl/standin/nvml.c tests/nccl/standin/gpu_settings.c
NCCL_LIFE_SRC := $(wildcard tests/nccl/rank/nccl_life*.c) tests/nccl/rank/nccl_lib.c tests/nccl/rank/nccl_release.c tests/nccl/rank/nccl_yield.c tools/r2_perf/util.c
NCCL_RANK_SRC := $(filter-out $(NCCL_LIFE_SRC),$(wildcard tests/nccl/rank/*.c)) tests/nccl/rank/nccl_lib.c tests/nccl/rank/nccl_release.c tests/nccl/rank/nccl_yield.c $(filter-out $(addprefix tools/r2_perf/,plugin.c conn.c wire.c engine.c player.c),$(PERF_SRC))

# Objects: $(B)/obj/ for the product, $(B)/tobj/ for test builds of the plugin, in which single protocol rules can be
# switched off (R2_TEST_RULES): the product never contains those switches.
obj   = $(patsubst %.c,$(B)/obj/%.o,$(1))
tobj  = $(patsubst %.c,$(B)/tobj/%.o,$(1))
standin_obj = $(patsubst %.c,$(B)/nccl-standin/$(1)/%.o,$(2))

PLUGIN   := $(B)/libnccl-net-r2.so
DROPIN   := $(B)/softfab-lib/libibverbs.so.1
UNIT_BIN := $(sort $(patsubst %.c,$(B)/tests/unit/%,$(notdir $(UNIT_SRC))))
ABI_BIN  := $(patsubst tests/abi/%.c,$(B)/tests/abi/%,$(ABI_SRC))
FUZZ     := handle oob records inband ring imm options faulttext registry stat topo ways events
FUZZ_BIN := $(addprefix $(B)/fuzz/fuzz_,$(FUZZ))
FUZZ_RUN := $(foreach f,$(FUZZ),$(B)/fuzz/fuzz_$(f)+$(B)/kept/$(f))
FUZZ_KEPT := $(foreach f,$(FUZZ),$(B)/kept/$(f).unpacked)

COLL     := $(B)/libr2coll.so
OOB_MPI  := $(if $(MPI_LIBS),$(B)/libnccl-net-r2-oob-mpi.so)
TOPO_HWLOC := $(if $(HWLOC_LIBS),$(B)/libnccl-net-r2-topo-hwloc.so)
BUILD_TARGETS := $(PLUGIN) $(COLL) $(OOB_MPI) $(B)/libnccl-net.so $(DROPIN) $(B)/softfab $(B)/r2_perf $(B)/r2_config $(B)/r2_ctl $(B)/r2_stat $(B)/r2_topo $(B)/r2_plan $(B)/r2_report $(B)/r2_diag $(TOPO_HWLOC)
NCCL_BINS     := $(if $(CUDA),$(B)/r2_nccl $(B)/r2_nccl_life $(B)/bench/libnccl-net-ib.so $(foreach r,$(STANDIN_RELEASES),$(addprefix $(B)/nccl-standin/$(r)/,libcuda.so.1 layout)) $(addprefix $(B)/nccl-standin/,libcudart.so.13 libnvidia-ml.so.1 topo.xml release gpus libnccl-profiler-watch.so deny_text bad/libnccl.so.2 bad/none/libnccl.so.2))
BENCH_BINS := $(B)/bench/bench_inproc $(B)/bench/bench_pair
TEST_BINS     := $(BENCH_BINS) $(B)/bench/bench_paper $(NCCL_BINS) $(STANDIN_TESTS) $(UNIT_BIN) $(ABI_BIN) $(FUZZ_BIN) $(B)/tests/abi/abi_driver $(B)/r2_sim $(B)/r2_soak $(B)/r2_matrix $(B)/tests/libnccl-net-tcptest.so $(B)/softfab_probe $(B)/before/release.so $(B)/before/wire.so $(B)/intruder $(B)/lab/verbs_watch $(B)/lab/lab_impair_test $(B)/lab/lab_switch_test $(if $(OOB_MPI),$(B)/tests/liboob_mpi_host.so) $(B)/topo_make $(if $(HWLOC_LIBS),$(B)/topo_xml) $(B)/gpu_coll $(B)/gpu-fake/cuda/libcuda.so.1 $(B)/gpu-fake/nccl/libnccl.so.2
E2E           := $(wildcard tests/e2e/*.sh)
E2E_RUN       := $(filter-out %_lib.sh,$(E2E))
NCCL_CHECKS   := $(STANDIN_TESTS) tests/nccl/layout.sh tests/nccl/bad_input.sh tests/nccl/check_nccl.sh tests/nccl/plugins.sh tests/nccl/place.sh tests/nccl/life.sh
# One after the other: the threads of NCCL never sleep, and those of two scripts starve the machine.
NCCL_CHAIN     = $(subst $(space),$(comma),$(filter-out $(STANDIN_TESTS),$(NCCL_CHECKS)))
SEEDS         ?= 1000
# Scripts run a job each, which waits more than it works.
E2E_JOBS      ?= $(if $(filter 1,$(JOBS)),1,2)
# Check's own limit of 4 s per test is no bound against hangs on a machine that others use too. Nor are the tests' own: one that hands work to threads takes ten
# times as long beside a program whose threads do not sleep.
export CK_DEFAULT_TIMEOUT ?= 60
export CK_TIMEOUT_MULTIPLIER ?= 5

.PHONY: all objects deps tests check check-asan check-tsan check-layers check-readme demo bench soak install install-default \
        uninstall clean format readme
.DEFAULT_GOAL := all
all: $(BUILD_TARGETS)
tests: all $(TEST_BINS)
# What tests/gpu/run.sh wants, on a machine with a GPU and elsewhere.
.PHONY: gpu-bins
gpu-bins: all $(B)/gpu_coll $(B)/gpu-fake/cuda/libcuda.so.1 $(B)/gpu-fake/nccl/libnccl.so.2 $(if $(CUDA),$(B)/r2_nccl $(B)/nccl-standin/gpus)
# Every source, product and test build, compiled and not linked: for a second compiler.
objects: $(if $(OOB_MPI),$(call obj,$(OOB_MPI_SRC) tests/e2e/oob_mpi_host.c)) $(call obj,$(CORE_SRC) $(COLL_SRC) $(MODEL_SRC) $(INPROC_SRC) $(SHM_SRC) $(CLI_SRC) $(PERF_SRC) $(CONFIG_SRC) $(CTL_SRC) $(STAT_SRC) $(TOPO_TOOL_SRC) $(PLAN_TOOL_SRC) $(REPORT_SRC) $(DIAG_SRC) $(PAPER_SRC) tests/topo/topo_make.c tests/topo/topo_make_write.c tests/e2e/intruder.c) $(if $(HWLOC_LIBS),$(call obj,$(HWLOC_SRC) tests/topo/topo_xml.c)) \
         $(call obj,$(WATCH_SRC) $(LAB_SRC) $(MATRIX_SRC) $(GPU_SRC) $(FAKE_CUDA_SRC) tests/gpu/fake/fake_nccl.c) \
         $(if $(CUDA),$(call obj,$(wildcard tests/nccl/rank/*.c) tests/nccl/release.c tests/nccl/gpus.c tests/nccl/bad/deny_text.c tests/nccl/watch/watch.c tests/nccl/ib/nccl_ib.c tests/nccl/standin/elf_symbols.c) $(call standin_obj,all,$(STANDIN_SRC) $(CUDART_SRC) $(NVML_SRC)) $(call standin_obj,bad,tests/nccl/bad/nccl_bad.c) $(call standin_obj,bad/none,tests/nccl/bad/nccl_bad.c)) \
         $(foreach r,$(STANDIN_RELEASES),$(call standin_obj,$(r),$(if $(CUDA),$(STANDIN_RELEASE_SRC),$(STANDIN_KERNEL_SRC)) tests/nccl/layout.c $(STANDIN_TEST_SRC) tests/nccl/unit/kernel_rig.c)) \
         $(call tobj,$(CORE_SRC) $(PLANNER_SRC) $(PLACE_SRC) $(COLL_SRC) $(SIM_SRC) $(SUPPORT_SRC) $(UNIT_SRC) $(ABI_SRC) $(FUZZ_SRC))

# Building is done by all cores, unless the caller said -j.
JOBS  ?= $(eval JOBS := $(shell nproc))$(JOBS)
BUILD = $(MAKE) --no-print-directory -s $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(JOBS))

# The two commands of README install what is missing before they build.
deps:
	@sh tools/install-deps.sh check
demo:
	@sh tools/install-deps.sh build
	+@$(BUILD) all
	@sh tools/demo.sh $(B)
check: deps
	+@$(BUILD) tests $(B)/bench/bench_inproc $(FUZZ_KEPT)
	@sh tests/run.sh $(B) -j $(JOBS) $(UNIT_BIN) $(ABI_BIN) $(FUZZ_RUN) $(B)/bench/bench_inproc+gossip+3 $(B)/bench/bench_inproc+hour $(STANDIN_TESTS) -- -j $(E2E_JOBS) $(NCCL_CHAIN) $(B)/lab/lab_impair_test $(B)/lab/lab_switch_test tests/lab/scn_test.sh tests/check_layers.sh tests/check_members.sh tests/check_planner.sh tests/check_readme.sh tests/check_man.sh tests/check_failures.sh tests/check_runbook.sh tests/check_deps.sh tests/check_run.sh tests/check_dist.sh tests/bench/check_calls.sh tests/check_nccl_tests.sh tests/gpu/run.sh+--dry-run $(B)/r2_sim+--seeds+$(SEEDS) \
	  tests/sim/without.sh $(E2E_RUN)
# For the edit loop: no optimisation, in a folder of its own, the suites that take two seconds and more left out. ONLY=NAME: those
# whose name contains it, slow or not.
QUICK_SLOW := abort_keys balance_loop balance_plan balance_same balance_slow bounce congest cross diag endings failback_silent gate hang host_registry \
              host_registry_file ib_mr_hang oob_conform_mpi oob_conform_ranks oob_mpi_hostile oob_tcp_hostile oob_tcp_loss oob_tcp_storm \
              pair_ways place_job_runs probe_gossip_walk probe_hang probe_verdict protocol_data race_channel race_reorder race_sweep relay_ways setup_slow slow \
              softfab_seg tcpdev tcpdev_gpu tcpdev_out tcpdev_stream watch watch_hour watch_none watch_tail ways
QUICK_UNIT  = $(sort $(patsubst test_%.c,%,$(notdir $(UNIT_SRC))))
QUICK_BIN   = $(addprefix $(B)/quick/tests/unit/test_,$(if $(ONLY),$(foreach t,$(QUICK_UNIT),$(if $(findstring $(ONLY),$(t)),$(t))),$(filter-out $(QUICK_SLOW),$(QUICK_UNIT))))
.PHONY: quick
quick: deps
	@echo "building into $(B)/quick"
	+@$(BUILD) B=$(B)/quick OPT="-O0 -g1" $(B)/quick/libnccl-net-r2.so $(B)/quick/r2_stat $(QUICK_BIN)
	@sh tests/run.sh $(B)/quick -j $(JOBS) $(QUICK_BIN)
# The tables of NCCL's net ABI, all versions: layouts, exports, and what NCCL does with them, over the software fabric.
.PHONY: check-abi
check-abi: deps
	+@$(BUILD) all $(ABI_BIN) $(B)/tests/abi/abi_driver
	@sh tests/run.sh $(B) $(ABI_BIN) tests/e2e/abi_fabric.sh
# The planner (docs/collectives.md); DEEP=1: a hundred times as many random cases.
PLANNER_TESTS := $(patsubst %.c,$(B)/tests/unit/%,$(notdir $(wildcard tests/unit/planner/test_*.c tests/unit/tools/test_plan_*.c)))
.PHONY: check-plan
check-plan: deps
	+@$(BUILD) all $(B)/bench/bench_paper $(PLANNER_TESTS)
	@sh tests/run.sh $(B) -l $(if $(DEEP),7200,600) $(PLANNER_TESTS) tests/check_planner.sh tests/e2e/plan.sh
.PHONY: check-format
check-format:
	@sh tests/run.sh $(B) tests/check_format.sh
check-layers:
	@sh tests/check_layers.sh $(B)
	@sh tests/check_members.sh $(B)
# The released NCCL on a stand-in for CUDA, over the plugin and the software fabric (tests/nccl/README.md).
.PHONY: check-nccl
check-nccl: deps
	+@$(BUILD) all $(NCCL_BINS) $(STANDIN_TESTS)
	@sh tests/run.sh $(B) -l $(if $(NCCL_DEEP),21600,3600) $(NCCL_CHECKS)
# The plugin beside NCCL's own IB transport, in one libnccl.so.2 on one fabric under the same faults (docs/nccl-ib.md). Root. BENCH_NCCL=OPTIONS of the script.
.PHONY: bench-nccl
bench-nccl: deps
	+@$(BUILD) all $(NCCL_BINS)
	@sh tests/nccl/bench_nccl.sh $(B) $(BENCH_NCCL)
# nccl-tests-patches on sources of nccl-tests: NCCL_TESTS=CLONE.
.PHONY: check-nccl-tests
check-nccl-tests: $(B)/tests/unit/test_nccl_fault
	@sh tests/run.sh $(B) $< tests/check_nccl_tests.sh
# The Promela model of the protocol (docs/model), every configuration in its whole state space; DEEP=1: the large ones, too.
.PHONY: check-model
check-model: deps
	@sh tests/check_model.sh $(B) $(if $(DEEP),--deep)
# The campaign (tests/soak/README.md): 10,000 schedules in process, 200 on the fabric in several processes, some of these under ASan,
# 50 in the lab. Each part runs, whatever became of the one before.
SOAK_SEEDS ?= 200
SOAK_LAB   ?= 50
SOAK_FROM  ?= 0
SOAK_ASAN  ?= 28
.PHONY: soak-sim soak-fabric soak-asan soak-lab
soak: deps
	@rc=0; for part in sim fabric asan lab; do echo "soak-$$part:"; $(MAKE) --no-print-directory -s soak-$$part || rc=1; done; exit $$rc
soak-sim: $(B)/r2_sim
	$(B)/r2_sim --soak --jobs 2
soak-fabric: all $(B)/r2_soak
	$(B)/r2_soak --seeds $(SOAK_SEEDS) --from $(SOAK_FROM)
soak-asan:
	@$(MAKE) --no-print-directory -s B=$(B)/asan SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" OPT="-O1 -g" run-soak-asan
.PHONY: run-soak-asan
run-soak-asan: all $(B)/r2_soak
	ASAN_OPTIONS=detect_leaks=1 $(B)/r2_soak --seeds $(SOAK_ASAN) --from $(SOAK_FROM) --limit 180
soak-lab: all lab-bins
	@sh tests/soak/soak_lab.sh $(B) --seeds $(SOAK_LAB) --from $(SOAK_FROM)

# The confusion matrix of localisation (tests/matrix/README.md), on three hosts and on two.
MATRIX_SEEDS ?= 500
.PHONY: matrix
matrix: deps
	+@$(BUILD) all $(B)/r2_matrix
	@rc=0; $(B)/r2_matrix --hosts 3 --nics 3 --seeds $(MATRIX_SEEDS) --json $(B)/matrix.json || rc=1; \
	 $(B)/r2_matrix --hosts 2 --nics 3 --seeds 90 --json $(B)/matrix2.json || rc=1; \
	 $(B)/r2_matrix --hosts 3 --nics 3 --crossrail --seeds 90 --json $(B)/matrix3x.json || rc=1; \
	 $(B)/r2_matrix --hosts 2 --nics 3 --crossrail --seeds 90 --json $(B)/matrix2x.json || rc=1; exit $$rc

# The same tests under sanitizers, in build folders of their own. Leaks count.
SAN_SEEDS ?= 160
check-asan: deps
	+@$(BUILD) B=$(B)/asan SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" OPT="-O1 -g" san-bins
	@ASAN_OPTIONS=detect_leaks=1 $(MAKE) --no-print-directory -s B=$(B)/asan run-san
# The suites whose code runs on several threads; the simulation and the tests on the in-process fabric have one. The product's own threads,
# all together, are run by tsan_e2e.sh.
TSAN_UNIT = $(addprefix $(B)/tsan/tests/unit/test_,log config config_lock siphash gate visit oob_tcp oob_tcp_hostile oob_tcp_loss oob_conform ib_worker ib_mr ib_mr_dmabuf ib_mr_hang ib_async ib_device tcpdev tcpdev_addr tcpdev_copy tcpdev_out tcpdev_stream tcpdev_gpu cuda cuda_fault cuda_lane cuda_lines last_copies coll_comm coll_break coll_make)
check-tsan: deps
	+@$(BUILD) B=$(B)/tsan SAN="-fsanitize=thread" OPT="-O1 -g" all $(B)/tsan/r2_matrix $(TSAN_UNIT)
	@TSAN_OPTIONS=halt_on_error=1 sh tests/run.sh $(B)/tsan -j $(JOBS) $(TSAN_UNIT) -- tests/tsan_e2e.sh
.PHONY: san-bins run-san
san-bins: $(UNIT_BIN) $(FUZZ_BIN) $(OOB_MPI) $(B)/r2_stat $(B)/r2_sim
run-san: $(FUZZ_KEPT)
	@sh tests/run.sh $(B) -j $(JOBS) $(UNIT_BIN) $(FUZZ_RUN) $(B)/r2_sim+--seeds+$(SAN_SEEDS)

# aarch64: the product, tools and tests by the cross compiler, run by qemu-user (docs/compat.md), which has no MADV_DONTFORK (fork, stat), no vfork (hook),
# no mremap of no bytes (ib_mr), and lets a load pass a store-release before it on x86-64 (watch_rest). Root of a user namespace is not the machine's
# (config_lock, event). The rest takes minutes there; the simulation goes through it.
A64_SEEDS ?= 300
A64_NOT = fork stat hook ib_mr watch_rest config_lock event drain failback failback_manual failback_when give_up gossip gossip_line pair race_setup
A64_UNIT = $(addprefix $(B)/tests/unit/test_,$(filter-out $(QUICK_SLOW) $(A64_NOT),$(QUICK_UNIT)))
.PHONY: check-aarch64 aarch64-bins run-aarch64
check-aarch64:
	@sh tools/install-deps.sh aarch64
	@mkdir -p $(B)/aarch64
	@sh tests/aarch64/libcheck.sh $(B)/aarch64
	+@$(BUILD) $(A64_FLAGS) aarch64-bins
	@sh tests/aarch64/with_qemu.sh $(MAKE) --no-print-directory -s $(A64_FLAGS) run-aarch64
A64_FLAGS = B=$(B)/aarch64 CC=aarch64-linux-gnu-gcc MPI_LIBS= MPI_CFLAGS= HWLOC_LIBS= CUDA= LDFLAGS=-L$(B)/aarch64/root/usr/lib/aarch64-linux-gnu
aarch64-bins: all $(A64_UNIT) $(ABI_BIN) $(FUZZ_BIN) $(FUZZ_KEPT) $(B)/r2_sim
run-aarch64:
	@sh tests/run.sh $(B) -l 600 -j $(JOBS) tests/aarch64/job.sh $(B)/r2_sim+--seeds+$(A64_SEEDS) $(A64_UNIT) $(ABI_BIN) $(FUZZ_RUN)

# Fuzz targets (tests/fuzz/README.md): with libFuzzer, T seconds each. check runs the inputs that are kept, with any compiler.
T ?= 60
FUZZ_SAN := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
.PHONY: fuzz fuzz-keep fuzz-bins
fuzz-bins: $(FUZZ_BIN)
fuzz:
	@sh tools/install-deps.sh ci
	+@$(BUILD) B=$(B)/fuzzer CC=clang SAN="$(FUZZ_SAN)" OPT="-O1 -g" LDFLAGS=-fsanitize=fuzzer FUZZ_MAIN= fuzz-bins
	@sh tests/fuzz/fuzz.sh $(B)/fuzzer $(T) $(FUZZ)
# The inputs that are kept are one archive for each target.
$(FUZZ_KEPT): $(B)/kept/%.unpacked: tests/fuzz/corpus/%.tar.gz tests/fuzz/fuzz.sh
	@sh tests/fuzz/fuzz.sh $(B) unpack $* >/dev/null
fuzz-keep:
	@sh tests/fuzz/fuzz.sh $(B)/fuzzer keep $(FUZZ)

bench: deps
	+@$(BUILD) all $(BENCH_BINS)
	@sh tests/bench/bench.sh $(B)

.PHONY: bench-probe
bench-probe: deps
	+@$(BUILD) all $(B)/bench/bench_inproc $(B)/r2_matrix
	@sh tests/bench/bench_probe.sh $(B)
.PHONY: bench-balance
bench-balance: deps
	+@$(BUILD) all $(B)/bench/bench_inproc
	@sh tests/bench/bench_balance.sh $(B)
# Figures of R2CCL's paper, made again: tables, and pictures in $(B)/paper (docs/collectives.md).
.PHONY: bench-paper
bench-paper: deps
	+@$(BUILD) $(B)/bench/bench_paper
	@mkdir -p $(B)/paper
	@$(B)/bench/bench_paper $(B)/paper
# RUNS: runs of each row.
.PHONY: bench-ways
bench-ways: deps
	+@$(BUILD) all
	@RUNS=$(or $(RUNS),20) sh tests/bench/bench_ways.sh $(B)
# Planned schedules on rated links (docs/collectives.md): times beside the simulator's.
.PHONY: bench-schedules
bench-schedules: deps
	+@$(BUILD) all
	@sh tests/bench/bench_schedules.sh $(B)
.PHONY: bench-last
bench-last: deps
	+@$(BUILD) all $(B)/bench/bench_pair
	@RUNS=$(or $(RUNS),10) sh tests/bench/bench_last.sh $(B)
# The plugin beside NCCL's own IB transport and others, all driven by one program. PEERS="--peer NAME=FILE ..."
.PHONY: bench-peers
bench-peers: deps
	+@$(BUILD) all $(B)/bench/bench_pair $(if $(CUDA),$(B)/bench/libnccl-net-ib.so)
	@RUNS=$(or $(RUNS),5) sh tests/bench/bench_peers.sh $(B) $(PEERS)
.PHONY: bench-rings
bench-rings: deps
	+@$(BUILD) $(B)/bench/bench_inproc
	@RUNS=$(or $(RUNS),8) sh tests/bench/bench_rings.sh $(B)

# The tables of options in docs/options.md and the manual page are made from the rows; tests/check_readme.sh and tests/check_man.sh fail when they
# are not up to date.
readme: $(B)/r2_config
	@sh tests/check_readme.sh $(B) --write
	@sh tests/check_man.sh $(B) --write

# Sanitizers have their own names for some of these calls.
GLIBC_OLD := $(if $(SAN),,-include plugin/base/r2_glibc.h)
# Where an older glibc has them.
GLIBC_PARTS := $(if $(SAN),,-Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0)
$(B)/obj/plugin/%.o $(B)/obj/topo/%.o $(B)/before/%.o: CFLAGS_ALL += $(GLIBC_OLD)
# Two fields side by side that are stored at once cost more in moves between kinds of registers than they save.
$(B)/obj/plugin/ib_transport/%.o: CFLAGS_ALL += -fno-tree-slp-vectorize
# Flags stand here: an object of other flags is no object of this tree.
$(B)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(B)/tobj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -DR2_TEST_RULES=1 -MMD -MP -c $< -o $@
# Of this build alone: those of other flags lie below it.
-include $(shell find $(addprefix $(B)/,obj tobj nccl-standin before) -type f -name '*.d' 2>/dev/null)

$(PLUGIN): $(call obj,$(CORE_SRC)) plugin/nccl/r2_exports.map
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,libnccl-net-r2.so -Wl,-z,nodelete -Wl,-z,defs \
	  -Wl,--as-needed -Wl,--build-id -Wl,--version-script=plugin/nccl/r2_exports.map $(GLIBC_PARTS)
	mv $@.tmp $@
$(COLL): $(call obj,$(COLL_OWN)) plugin/coll/exports.map
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-z,defs \
	  -Wl,--as-needed -Wl,--build-id -Wl,--version-script=plugin/coll/exports.map $(GLIBC_PARTS)
	mv $@.tmp $@
$(B)/obj/plugin/oob/mpi/%.o $(B)/obj/tests/e2e/oob_mpi_host.o: CFLAGS_ALL += $(MPI_CFLAGS)
$(B)/libnccl-net-r2-oob-mpi.so: $(call obj,$(OOB_MPI_SRC)) plugin/oob/mpi/exports.map
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-z,defs -Wl,--build-id \
	  -Wl,--version-script=plugin/oob/mpi/exports.map $(MPI_LIBS)
	mv $@.tmp $@
$(B)/libnccl-net-r2-topo-hwloc.so: $(call obj,$(HWLOC_SRC)) topo/topo_hwloc.map
	$(CC) -shared -o $@.tmp $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,nodelete -Wl,-z,defs -Wl,--build-id \
	  -Wl,--version-script=topo/topo_hwloc.map $(HWLOC_LIBS) -lm
	mv $@.tmp $@
# Makes any program one that runs MPI (tests/e2e/oob_mpi.sh).
$(B)/tests/liboob_mpi_host.so: $(call obj,tests/e2e/oob_mpi_host.c)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-z,defs $(MPI_LIBS)
$(B)/libnccl-net.so: $(PLUGIN)
	ln -sf libnccl-net-r2.so $@

$(B)/libr2core.a: $(call tobj,$(CORE_SRC) $(PLANNER_SRC) $(PLACE_SRC) $(filter-out %/coll_calls.c,$(COLL_SRC)))
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
# The Soft-RoCE lab (tests/lab/README.md). What runs inside its VMs uses the libraries of this machine, which the VMs see.
LAB_BIN := $(addprefix $(B)/lab/,lab_switch lab_agent lab_nic lab_trigger lab_ctl)
lab_obj = $(call obj,$(patsubst %,tests/lab/lab_%.c,$(1)))
$(B)/lab/lab_switch: $(call lab_obj,switch switch_port spine impair watch util)
$(B)/lab/lab_agent: $(call lab_obj,agent agent_trigger session job explain netif watch wire util)
$(B)/lab/lab_nic: $(call lab_obj,nic netif util)
$(B)/lab/lab_trigger: $(call lab_obj,trigger util)
$(B)/lab/lab_ctl: $(call lab_obj,ctl client fault proc qmp still wire util)
$(LAB_BIN):
	@mkdir -p $(@D)
	$(CC) -o $@.tmp $^ $(LDFLAGS_ALL) $(if $(filter %/lab_ctl,$@),-ljansson)
	mv $@.tmp $@
.PHONY: lab-bins lab-up lab-down
lab-bins: $(LAB_BIN)
# The switch without VMs.
$(B)/lab/lab_switch_test: $(call lab_obj,switch_test spine util) $(B)/lab/lab_switch
$(B)/lab/lab_impair_test: $(call lab_obj,impair_test spine impair util)
$(B)/lab/lab_switch_test $(B)/lab/lab_impair_test:
	$(CC) -o $@ $(filter %.o,$^) $(LDFLAGS_ALL) -lcheck -lsubunit -lm -lrt
HOSTS ?= 2
lab-up:
	@sh tests/lab/lab.sh $(B) up --hosts $(HOSTS)
	@echo "  sh tests/lab/lab.sh $(B) exec h0 -- ibv_devinfo       a command in a VM"
	@echo "  sh tests/lab/lab.sh $(B) fault linkdown h0:n1         a fault; without an argument: which there are; reset heals all"
	@echo "  make lab-down                                         the end; tests/lab/README.md has the rest"
lab-down:
	@sh tests/lab/lab.sh $(B) down
# The packages, and what they install in a folder that has nothing else. Root; no network.
.PHONY: check-packages
check-packages:
	@sh tools/install-deps.sh deb
	@sh tools/install-deps.sh rpm
	+@$(BUILD) all
	@sh tests/run.sh $(B) tests/check_packages.sh tests/check_rpm.sh
# The container image of the Debian packages, and what share/kubernetes runs in it. Root; a mirror of Debian's.
.PHONY: check-container
check-container:
	@sh tools/install-deps.sh container
	+@$(BUILD) all
	@sh tests/run.sh $(B) tests/check_container.sh
.PHONY: check-lab
check-lab: deps
	+@$(BUILD) all lab-bins $(B)/tests/abi/abi_driver $(B)/r2_matrix
	@sh tests/lab/check_lab.sh $(B) $(if $(ONLY),"$(ONLY)")

# The command shares the segment code and the text forms (not the ibv_* entry points) with the drop-in.
SHM_SHARED := $(filter tests/fabric/shm/seg_%.c,$(SHM_SRC)) tests/fabric/model/fab_desc.c tests/fabric/model/fab_fault.c tests/fabric/model/fab_spine.c
$(B)/softfab: $(call obj,$(CLI_SRC) $(SHM_SHARED) $(ARGS_SRC) plugin/base/r2_json.c)
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
# What verbs reports when something breaks: on rdma-core, or on the drop-in library (tests/lab/verbs_compare.sh).
$(B)/lab/verbs_watch: $(call obj,$(WATCH_SRC))
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -libverbs
# A verbs program that breaks the fabric below itself (tests/e2e).
$(B)/softfab_probe: $(call obj,tests/e2e/softfab_probe.c tests/e2e/softfab_probe_end.c $(SHM_SHARED)) $(DROPIN)
	$(CC) -o $@ $(filter %.o,$^) -L$(B)/softfab-lib -libverbs $(LDFLAGS_ALL)
# Strangers at the ports of a job (tests/e2e/strangers.sh).
$(B)/intruder: $(call obj,tests/e2e/intruder.c plugin/oob/oob_wire.c plugin/base/r2_siphash.c)
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
$(B)/r2_perf: $(call obj,$(PERF_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl -lm
$(B)/r2_config: $(call obj,$(CONFIG_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
$(B)/r2_ctl: $(call obj,$(CTL_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
$(B)/r2_stat: $(call obj,$(STAT_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
$(B)/r2_topo: $(call obj,$(TOPO_TOOL_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
$(B)/r2_plan: $(call obj,$(PLAN_TOOL_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -lm
$(B)/r2_report: $(call obj,$(REPORT_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
$(B)/r2_diag: $(call obj,$(DIAG_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -lm
$(B)/gen/runbook.inc: docs/runbook.md
	@mkdir -p $(@D)
	sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&",/' $< >$@.tmp && mv -f $@.tmp $@
$(B)/obj/tools/r2_report/runbook.o: $(B)/gen/runbook.inc
$(B)/obj/tools/r2_report/runbook.o: CFLAGS_ALL += -I$(B)/gen
# Machines in words become trees of files, and hwloc's XML (tests/topo).
$(B)/topo_make: $(call obj,tests/topo/topo_make.c tests/topo/topo_make_write.c)
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
$(B)/topo_xml: $(call obj,tests/topo/topo_xml.c)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) $(HWLOC_LIBS)
# Collectives through NCCL on one GPU (tests/gpu); CUDA and NCCL are opened at run time. The stand-ins run its own logic where there are none.
$(B)/gpu_coll: $(call obj,$(GPU_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl -lm
$(B)/gpu-fake/cuda/libcuda.so.1: $(call obj,$(FAKE_CUDA_SRC))
$(B)/gpu-fake/nccl/libnccl.so.2: $(call obj,tests/gpu/fake/fake_nccl.c)
$(B)/gpu-fake/cuda/libcuda.so.1 $(B)/gpu-fake/nccl/libnccl.so.2:
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,defs
# The stand-in for CUDA under the released NCCL, a library for each release whose layouts are known, of which the kernels alone differ, and
# the ranks that use it (tests/nccl).
STANDIN_CFLAGS = $(CFLAGS_ALL) -fvisibility=default $(if $(CUDA),-isystem $(CUDA)/include)
STANDIN_LINK = $(CC) -shared -o $@ $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,defs -Wl,--version-script=$(filter %.map,$^)
$(B)/obj/tests/nccl/%.o: CFLAGS_ALL += -isystem $(CUDA)/include -DNCCL_LIB_DEFAULT='"$(CUDA)/lib/libnccl.so.2"'
$(B)/nccl-standin/all/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(STANDIN_CFLAGS) -MMD -MP -c $< -o $@
define standin_rules
$(B)/nccl-standin/$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$$(CC) $$(STANDIN_CFLAGS) -DNCCL_RELEASE=$(1) -MMD -MP -c $$< -o $$@
$(B)/nccl-standin/$(1)/libcuda.so.1: $(call standin_obj,all,$(STANDIN_SRC)) $(call standin_obj,$(1),$(STANDIN_RELEASE_SRC)) tests/nccl/standin/driver.map $(B)/nccl-standin/libcudart.so.13
	$$(STANDIN_LINK) -L$(B)/nccl-standin -l:libcudart.so.13 '-Wl,-rpath,$$$$ORIGIN/..' -ldl
$(B)/nccl-standin/$(1)/layout: $(call standin_obj,$(1),tests/nccl/layout.c)
	$$(CC) -o $$@ $$^ $$(LDFLAGS_ALL)
$(B)/nccl-standin/$(1)/test_%: $(B)/nccl-standin/$(1)/tests/nccl/unit/test_%.o $(call standin_obj,$(1),$(STANDIN_KERNEL_SRC) tests/nccl/unit/kernel_rig.c) $(call standin_obj,all,tests/nccl/standin/gpu_stream.c tests/nccl/standin/gpu_graph.c)
	$$(CC) -o $$@ $$^ $$(LDFLAGS_ALL) -lcheck -lsubunit -lm -lrt
endef
$(foreach r,$(STANDIN_RELEASES),$(eval $(call standin_rules,$(r))))
$(B)/nccl-standin/libcudart.so.13: $(call standin_obj,all,$(CUDART_SRC)) tests/nccl/standin/runtime.map
	$(STANDIN_LINK) -ldl
$(B)/nccl-standin/libnvidia-ml.so.1: $(call standin_obj,all,$(NVML_SRC)) tests/nccl/standin/nvml.map
	$(STANDIN_LINK)
$(B)/nccl-standin/release: $(call obj,tests/nccl/release.c tests/nccl/rank/nccl_release.c)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
$(B)/nccl-standin/gpus: $(call obj,tests/nccl/gpus.c)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
# Libraries that are no NCCL (tests/nccl/bad_input.sh).
$(B)/nccl-standin/bad/none/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -DNO_RUNTIME -MMD -MP -c $< -o $@
$(B)/nccl-standin/bad/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(B)/nccl-standin/bad/libnccl.so.2 $(B)/nccl-standin/bad/none/libnccl.so.2:
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,libnccl.so.2
$(B)/nccl-standin/bad/libnccl.so.2: $(B)/nccl-standin/bad/tests/nccl/bad/nccl_bad.o
$(B)/nccl-standin/bad/none/libnccl.so.2: $(B)/nccl-standin/bad/none/tests/nccl/bad/nccl_bad.o
$(B)/nccl-standin/deny_text: $(call obj,tests/nccl/bad/deny_text.c)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL)
$(B)/nccl-standin/topo.xml: tests/nccl/topo.xml
	@mkdir -p $(@D)
	cp $< $@
# A profiler plugin that counts what NCCL and the network tell it.
$(B)/nccl-standin/libnccl-profiler-watch.so: $(call obj,tests/nccl/watch/watch.c)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,defs
# NCCL's own IB transport where a driver of plugins finds it.
$(B)/bench/libnccl-net-ib.so: $(call obj,tests/nccl/ib/nccl_ib.c tests/nccl/standin/elf_symbols.c)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,$(@F) -Wl,-z,defs -ldl
$(B)/r2_nccl: $(call obj,$(NCCL_RANK_SRC))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl -lm
# Communicators that come and go inside NCCL; its conductor reads the fabric's counters.
$(B)/r2_nccl_life: $(call obj,$(NCCL_LIFE_SRC) $(SHM_SHARED))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl -lm
# A stand-in for rdma-core's libmlx5, and one from before bonds: opened at run time by one suite.
$(B)/fake-mlx5/libmlx5.so.1 $(B)/fake-mlx5/old/libmlx5.so.1: tests/support/mlx5/fake_mlx5.c tests/support/mlx5/fake_mlx5.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(if $(findstring /old/,$@),-DFAKE_MLX5_OLD) -shared -o $@ $< $(LDFLAGS_ALL)
# A plugin of another make, right or wrong on demand: what r2_perf itself is tested with.
$(B)/tests/libnccl-net-tcptest.so: $(call obj,tests/support/tcp_plugin/tcp_plugin.c)
	@mkdir -p $(@D)
	$(CC) -shared -o $@ $^ $(LDFLAGS_ALL) -Wl,-soname,libnccl-net-tcptest.so -Wl,-z,defs

comma := ,
space := $(subst ,, )
TESTLIBS := $(B)/libr2core.a $(B)/libtestsupport.a $(B)/libfabmodel.a
# It makes machines of words.
$(B)/tests/unit/test_relay_ways: | $(B)/topo_make
# It stands between the module and MPI.
$(B)/tests/unit/test_oob_mpi_hostile: LDFLAGS_ALL += $(addprefix -Wl$(comma)--export-dynamic-symbol=PMPI_,Issend Iprobe Irecv Test)
$(B)/tests/unit/test_ib_lag: | $(B)/fake-mlx5/libmlx5.so.1 $(B)/fake-mlx5/old/libmlx5.so.1
# They open the stand-in for CUDA's driver at run time.
$(B)/tests/unit/test_cuda $(B)/tests/unit/test_cuda_fault $(B)/tests/unit/test_cuda_lane $(B)/tests/unit/test_cuda_lines $(B)/tests/unit/test_last_copies: | $(B)/gpu-fake/cuda/libcuda.so.1
$(B)/tests/unit/test_gate $(B)/tests/unit/test_visit $(B)/tests/unit/test_topo: TEST_WRAP := -Wl,--wrap=syscall
$(B)/tests/unit/test_wait: TEST_WRAP := -Wl,--wrap=ppoll
$(B)/tests/unit/test_ib_worker: TEST_WRAP := -Wl,--wrap=pthread_cond_signal,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock
$(B)/tests/unit/test_admin_files: TEST_WRAP := -Wl,--wrap=r2_rundir_stamp_get
$(B)/tests/unit/test_report_why: TEST_WRAP := -Wl,--wrap=r2_seam_find
$(B)/tests/unit/test_slowness: TEST_WRAP := -Wl,--wrap=ib_send_progress,--wrap=r2_pair_find
$(B)/tests/unit/test_slow_word: TEST_WRAP := -Wl,--wrap=ib_send_progress,--wrap=r2_pair_find,--wrap=r2_slow_state
$(B)/tests/unit/test_inst: TEST_WRAP := -Wl,--wrap=malloc,--wrap=calloc
$(B)/tests/unit/test_reg_handles: TEST_WRAP := -Wl,--wrap=calloc,--wrap=realloc
$(foreach t,$(UNIT_SRC),$(eval $(B)/tests/unit/$(notdir $(basename $(t))): $(call tobj,$(t))))
$(UNIT_BIN): $(TESTLIBS)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(TESTLIBS) -Wl,--end-group $(LDFLAGS_ALL) -Wl,--wrap=_mark_point $(TEST_WRAP) -lcheck -lsubunit -lm -lrt -ldl
# Calls that a target answers itself are replaced at link time; the rig runs without Check (tests/fuzz/fuzz_rig.c).
FUZZ_MAIN ?= corpus
fuzz_obj = $(call tobj,$(patsubst %,tests/fuzz/fuzz_%.c,$(1)))
$(B)/fuzz/fuzz_records: $(call fuzz_obj,check word)
$(B)/fuzz/fuzz_inband: $(call fuzz_obj,check word flow foe)
$(addprefix $(B)/fuzz/fuzz_,handle records inband): $(call fuzz_obj,rig)
$(addprefix $(B)/fuzz/fuzz_,handle records inband): FUZZ_WRAP := -Wl,--wrap=fab_inproc_run_until
$(B)/fuzz/fuzz_ring $(B)/fuzz/fuzz_imm: $(call fuzz_obj,nic)
$(B)/fuzz/fuzz_oob: FUZZ_WRAP := -Wl,--wrap=connect
$(B)/fuzz/fuzz_options: FUZZ_WRAP := -Wl,--wrap=r2_conf_file_is_ours
$(FUZZ_BIN): $(B)/fuzz/fuzz_%: $(B)/tobj/tests/fuzz/fuzz_%.o $(call fuzz_obj,$(FUZZ_MAIN)) $(TESTLIBS)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(TESTLIBS) -Wl,--end-group $(LDFLAGS_ALL) $(FUZZ_WRAP) -lm -lrt -ldl
# The tables driven by rules of NCCL's, by code that shares nothing with the plugin (tests/e2e/abi_fabric.sh).
$(B)/tests/abi/abi_driver: $(call obj,tests/abi/abi_driver.c $(wildcard tests/abi/drv_*.c) tools/r2_perf/abi_view.c)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl
$(B)/tests/abi/%: $(B)/tobj/tests/abi/%.o $(call tobj,tools/r2_perf/abi_view.c) $(B)/libtestsupport.a
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -lcheck -lsubunit -lm -lrt -ldl
# The in-process benchmarks: the product's objects as one, its heap calls renamed so that what it allocates can be counted.
HEAP_CALLS := malloc calloc realloc posix_memalign free mmap munmap
$(B)/bench/core.o: $(call obj,$(CORE_SRC))
	@mkdir -p $(@D)
	$(CC) -r -nostdlib -o $@.tmp $^
	objcopy $(foreach f,$(HEAP_CALLS),--redefine-sym $f=bench_$f) $@.tmp
	mv $@.tmp $@
$(B)/bench/bench_inproc: $(call obj,$(wildcard tests/bench/bench_*.c) tests/support/duo.c) $(B)/bench/core.o $(B)/libfabmodel.a
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -lm -ldl
$(B)/bench/bench_paper: $(call obj,$(PAPER_SRC))
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -lm
# Two processes through the newest table; it breaks the fabric itself, to know the instant, and counts the plugin's calls of syscall() and ppoll().
$(B)/bench/bench_pair: $(call obj,$(wildcard tests/bench/pair*.c) tests/abi/drv_core.c tests/abi/drv_link.c tools/r2_perf/abi_view.c $(SHM_SHARED))
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) $(addprefix -Wl$(comma)--export-dynamic-symbol=,syscall ppoll) -ldl

$(B)/r2_sim: $(call tobj,$(SIM_SRC) $(addprefix tests/matrix/matrix_,truth.c line.c table.c)) $(TESTLIBS)
	$(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(TESTLIBS) -Wl,--end-group $(LDFLAGS_ALL) -lm -ldl
# The campaign on the fabric: conductor and processes are one program (tests/soak).
$(B)/r2_soak: $(call obj,$(SOAK_SRC) tests/matrix/matrix_line.c $(SHM_SHARED) tools/r2_perf/abi_view.c)
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl

# What every process says broke, beside what was broken (tests/matrix).
$(B)/r2_matrix: $(call obj,$(MATRIX_SRC) $(SHM_SHARED))
	$(CC) -o $@ $^ $(LDFLAGS_ALL) -ldl

# Plugins as they were before an upgrade (tests/e2e/upgrade.sh): of another release with the same wire protocol, and with another one.
WIRE_SRC := plugin/control/fo_proto.c plugin/service/r2_dispatch.c plugin/service/r2_connect.c plugin/nccl/r2_init.c
before_obj = $(patsubst %.c,$(B)/before/$(1)/%.o,$(2)) $(call obj,$(filter-out $(2),$(CORE_SRC)))
before_compile = @mkdir -p $(@D) && $(CC) $(CFLAGS_ALL) -UR2_VERSION -DR2_VERSION='"0.1.9"' $(1) -MMD -MP -c $< -o $@
$(B)/before/release/%.o: %.c
	$(call before_compile)
$(B)/before/wire/%.o: %.c
	$(call before_compile,-DFO_PROTO_VERSION=6)
$(B)/before/release.so: $(call before_obj,release,plugin/nccl/r2_init.c)
$(B)/before/wire.so: $(call before_obj,wire,$(WIRE_SRC))
$(B)/before/release.so $(B)/before/wire.so: plugin/nccl/r2_exports.map
	$(CC) -shared -o $@ $(filter %.o,$^) $(LDFLAGS_ALL) -Wl,-soname,libnccl-net-r2.so -Wl,-z,nodelete -Wl,-z,defs -Wl,--version-script=plugin/nccl/r2_exports.map $(GLIBC_PARTS)

# Installed files are replaced by rename, never written in place: a running job may have the old one mapped.
define install_file
	mkdir -p $(dir $(DESTDIR)$(2)) && install -m $(3) $(1) $(DESTDIR)$(2).tmp && mv -f $(DESTDIR)$(2).tmp $(DESTDIR)$(2)
endef
# The fleet kit (docs/fleet.md); what names a tool names the one that is installed with it.
SHARE     := $(sort $(wildcard share/*/*))
SHARED    := $(addprefix $(PREFIX)/share/nccl-net-r2/,$(SHARE:share/%=%))
define install_shared
	$(call install_file,$(1),$(PREFIX)/share/nccl-net-r2/$(1:share/%=%),$(shell [ -x $(1) ] && echo 755 || echo 644))

endef
INSTALLED := $(LIBDIR)/libnccl-net-r2.so $(LIBDIR)/nccl-net-r2/libnccl-net-r2-oob-mpi.so $(LIBDIR)/nccl-net-r2/libnccl-net-r2-topo-hwloc.so \
             $(PREFIX)/lib/nccl-net-r2/softfab-lib/libibverbs.so.1 \
             $(addprefix $(PREFIX)/bin/,softfab r2_perf r2_config r2_ctl r2_stat r2_topo r2_plan r2_report r2_diag) $(PREFIX)/share/doc/nccl-net-r2/README.md \
             $(addprefix $(PREFIX)/share/man/man1/,r2_config.1 r2_ctl.1 r2_stat.1 r2_topo.1 r2_plan.1 r2_report.1 r2_diag.1) $(PREFIX)/share/man/man7/nccl-net-r2.7 \
             $(SHARED)
install: $(PLUGIN) $(OOB_MPI) $(TOPO_HWLOC) $(DROPIN) $(B)/softfab $(B)/r2_perf $(B)/r2_config $(B)/r2_ctl $(B)/r2_stat $(B)/r2_topo $(B)/r2_plan $(B)/r2_report $(B)/r2_diag
	$(call install_file,$(PLUGIN),$(LIBDIR)/libnccl-net-r2.so,755)
	$(if $(OOB_MPI),$(call install_file,$(OOB_MPI),$(LIBDIR)/nccl-net-r2/libnccl-net-r2-oob-mpi.so,755))
	$(if $(TOPO_HWLOC),$(call install_file,$(TOPO_HWLOC),$(LIBDIR)/nccl-net-r2/libnccl-net-r2-topo-hwloc.so,755))
	$(call install_file,$(DROPIN),$(PREFIX)/lib/nccl-net-r2/softfab-lib/libibverbs.so.1,644)
	$(call install_file,$(B)/softfab,$(PREFIX)/bin/softfab,755)
	$(call install_file,$(B)/r2_perf,$(PREFIX)/bin/r2_perf,755)
	$(call install_file,$(B)/r2_config,$(PREFIX)/bin/r2_config,755)
	$(call install_file,$(B)/r2_ctl,$(PREFIX)/bin/r2_ctl,755)
	$(call install_file,$(B)/r2_stat,$(PREFIX)/bin/r2_stat,755)
	$(call install_file,$(B)/r2_topo,$(PREFIX)/bin/r2_topo,755)
	$(call install_file,$(B)/r2_plan,$(PREFIX)/bin/r2_plan,755)
	$(call install_file,$(B)/r2_report,$(PREFIX)/bin/r2_report,755)
	$(call install_file,$(B)/r2_diag,$(PREFIX)/bin/r2_diag,755)
	$(call install_file,README.md,$(PREFIX)/share/doc/nccl-net-r2/README.md,644)
	$(call install_file,docs/r2_config.1,$(PREFIX)/share/man/man1/r2_config.1,644)
	$(call install_file,docs/r2_ctl.1,$(PREFIX)/share/man/man1/r2_ctl.1,644)
	$(call install_file,docs/r2_stat.1,$(PREFIX)/share/man/man1/r2_stat.1,644)
	$(call install_file,docs/r2_topo.1,$(PREFIX)/share/man/man1/r2_topo.1,644)
	$(call install_file,docs/r2_plan.1,$(PREFIX)/share/man/man1/r2_plan.1,644)
	$(call install_file,docs/r2_report.1,$(PREFIX)/share/man/man1/r2_report.1,644)
	$(call install_file,docs/r2_diag.1,$(PREFIX)/share/man/man1/r2_diag.1,644)
	$(call install_file,docs/nccl-net-r2.7,$(PREFIX)/share/man/man7/nccl-net-r2.7,644)
	$(foreach f,$(SHARE),$(call install_shared,$(f)))
	@sed -i 's,"/usr/bin/,"$(PREFIX)/bin/,' $(DESTDIR)$(PREFIX)/share/nccl-net-r2/kubernetes/node-problem-detector.json
	@sed -i 's,@VERSION@,$(VERSION),; s,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$(LIBDIR),' $(DESTDIR)$(PREFIX)/share/nccl-net-r2/modulefiles/nccl-net-r2
	@[ -n "$(DESTDIR)" ] || echo "installed. NCCL finds it by NCCL_NET_PLUGIN=r2 once the loader knows $(LIBDIR) (ldconfig), or by NCCL_NET_PLUGIN=$(LIBDIR)/libnccl-net-r2.so; next: r2_config --doctor"
# NCCL takes libnccl-net.so without being asked: only on demand, and never over somebody else's file.
install-default: install
	@if { [ -e "$(DESTDIR)$(LIBDIR)/libnccl-net.so" ] || [ -L "$(DESTDIR)$(LIBDIR)/libnccl-net.so" ]; } && \
	  [ "$$(readlink "$(DESTDIR)$(LIBDIR)/libnccl-net.so")" != libnccl-net-r2.so ]; then \
	  echo "$(DESTDIR)$(LIBDIR)/libnccl-net.so belongs to another plugin: not replaced" >&2; exit 1; fi
	ln -sfn libnccl-net-r2.so $(DESTDIR)$(LIBDIR)/libnccl-net.so
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	@if [ "$$(readlink "$(DESTDIR)$(LIBDIR)/libnccl-net.so" 2>/dev/null)" = libnccl-net-r2.so ]; then \
	  rm -f "$(DESTDIR)$(LIBDIR)/libnccl-net.so"; fi
	-@rmdir $(addprefix $(DESTDIR),$(sort $(dir $(SHARED)))) $(DESTDIR)$(PREFIX)/share/nccl-net-r2 2>/dev/null || true
	-@rmdir $(DESTDIR)$(PREFIX)/share/doc/nccl-net-r2 $(DESTDIR)$(PREFIX)/lib/nccl-net-r2/softfab-lib $(DESTDIR)$(PREFIX)/lib/nccl-net-r2 $(DESTDIR)$(LIBDIR)/nccl-net-r2 2>/dev/null || true

# The source of the commit that is checked out: the same bytes on every machine. It builds without git.
.PHONY: dist
dist:
	@mkdir -p $(B)
	@git diff --quiet HEAD || echo "dist: what is not committed is left out" >&2
	set -e; t=nccl-net-r2-$$(git show HEAD:VERSION); git -c tar.umask=0022 archive --format=tar --prefix=$$t/ HEAD >$(B)/$$t.tar; \
	  gzip -9n <$(B)/$$t.tar >$(B)/$$t.tar.gz.tmp; rm $(B)/$$t.tar; mv $(B)/$$t.tar.gz.tmp $(B)/$$t.tar.gz

# Debian packages (packaging/deb), in $(B)/deb.
.PHONY: deb
deb:
	@sh tools/install-deps.sh deb
	+@$(BUILD) all
	@sh packaging/deb/build.sh $(B)
# RPM packages of the same files (packaging/rpm), in $(B)/rpm.
.PHONY: rpm
rpm:
	@sh tools/install-deps.sh rpm
	+@$(BUILD) all
	@sh packaging/rpm/build.sh $(B)

clean:
	rm -rf $(B)
format:
	clang-format-16 -i $$(git ls-files '*.c' '*.h')
