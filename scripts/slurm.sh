#!/usr/bin/env bash
#SBATCH --job-name=seal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=slurm-%j.log
#SBATCH --signal=B:TERM@660
# One run over all nodes of a Slurm job. Submit it from the repository, which all nodes must see:
#   sbatch --nodes=4 --gpus-per-node=8 scripts/slurm.sh exp/SEAL.yaml [key=value ...]
# Starts Ray and the environment service on every node, runs launcher.py on the first, and stops what it started.
# Before the time limit the run is interrupted; submit the same line again to resume it. --signal gives a minute more than
# seal.stop_grace_s: exp/SEAL_1gpu.yaml, which has an hour, needs `sbatch --signal=B:TERM@3660`. A plain scancel, or a
# preemption that signals the steps, ends Ray before a checkpoint is saved: `scancel --batch --signal=TERM JOB` saves one.
#   PYTHON        the environment's interpreter (default: .venv's, else that of the activated environment)
#   RAY_PORT, BFCL_PORT  ports on the nodes (default: chosen by the job's number)
#   GPUS          GPUs per node, if Slurm does not manage them
set -euo pipefail

fail() {
  printf 'slurm.sh: %s\n' "$*" >&2
  exit 1
}

[ -n "${SLURM_JOB_ID:-}" ] || fail "run it with sbatch: sbatch scripts/slurm.sh exp/SEAL.yaml"
cd "$SLURM_SUBMIT_DIR"
[ -f launcher.py ] || fail "submit it from SEAL's repository; $SLURM_SUBMIT_DIR does not hold launcher.py."
[ $# -ge 1 ] || fail "name a recipe: sbatch scripts/slurm.sh exp/SEAL.yaml"
recipe=$1
shift

python=${PYTHON:-}
if [ -z "$python" ]; then
  python=.venv/bin/python
  [ -x "$python" ] || python=$(command -v python) || fail "no python was found: activate SEAL's environment, or set PYTHON."
fi
python=$("$python" -c 'import sys; print(sys.executable)')
ray=$(dirname "$python")/ray
[ -x "$ray" ] || fail "$python has no ray next to it: activate SEAL's environment, or set PYTHON."

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
count=${#nodes[@]}
head=${nodes[0]}
gpus=${SLURM_GPUS_ON_NODE:-${GPUS:-}}
[ -n "$gpus" ] || fail "the job has no GPUs: ask for them with sbatch --gpus-per-node=N."
# Ray only counts processors: verl needs 3 per GPU and up to 9 for the data queue.
cpus=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}
slots=$((3 * gpus + 9 > cpus ? 3 * gpus + 9 : cpus))
ray_port=${RAY_PORT:-$((20000 + SLURM_JOB_ID % 5000))}
bfcl_port=${BFCL_PORT:-$((25000 + SLURM_JOB_ID % 5000))}
# Ray and the services listen on the network; the tokens make them answer only to this job.
secret() { "$python" -c 'import secrets; print(secrets.token_hex(32))'; }
BFCL_TOKEN=${BFCL_TOKEN:-$(secret)}
RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(secret)}
export BFCL_TOKEN RAY_AUTH_TOKEN RAY_AUTH_MODE=token BFCL_HOST=0.0.0.0 BFCL_PORT=$bfcl_port

started=()
launcher=
# shellcheck disable=SC2329  # called by the trap
finish() {
  trap - EXIT
  trap '' TERM INT # a scheduler may send one more while the run saves
  if [ -n "$launcher" ] && kill -TERM "$launcher" 2>/dev/null; then
    wait "$launcher" || true
  fi
  for process in "${started[@]}"; do
    kill -TERM "$process" 2>/dev/null || true
  done
  wait
}
trap finish EXIT
trap 'exit 143' TERM INT

on() { # NODE COMMAND...: runs it there, next to whatever else the job runs there
  local node=$1
  shift
  # A step does not inherit the job's --cpus-per-task, and Ray's workers would share the one core it is bound to.
  srun --overlap --nodes=1 --ntasks=1 --cpus-per-task="$cpus" --cpu-bind=none --nodelist="$node" "$@"
}

wait_for() { # WHAT SECONDS COMMAND...: until the command succeeds
  local what=$1 deadline=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || fail "$what: not ready in time; see the messages above."
    for process in "${started[@]}"; do
      kill -0 "$process" 2>/dev/null || fail "$what: a process that was started for it has ended; see the messages above."
    done
    sleep 2
  done
}

# Ray's own choice among the node's addresses: the one that other machines reach.
address=$(on "$head" "$python" -c 'import ray; print(ray.util.get_node_ip_address())' | tail -n 1):$ray_port
echo "Ray at $address on $count nodes: ${nodes[*]}"
on "$head" "$ray" start --head --block --disable-usage-stats --node-ip-address="${address%:*}" --port="$ray_port" \
  --num-gpus="$gpus" --num-cpus="$slots" &
started+=($!)
wait_for "Ray's head" 180 "$ray" status --address "$address"
for node in "${nodes[@]:1}"; do
  on "$node" "$ray" start --block --disable-usage-stats --address="$address" --num-gpus="$gpus" \
    --num-cpus="$slots" &
  started+=($!)
done

urls=
for node in "${nodes[@]}"; do
  on "$node" env PYTHON="$python" bash env_service/launch_script/bfcl.sh &
  started+=($!)
  urls+="${urls:+,}http://$node:$bfcl_port"
done

all_nodes='import ray, sys; ray.init(sys.argv[1], log_to_driver=False)
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]))'
wait_for "all $count nodes in Ray" 300 "$python" -c "$all_nodes" "$address" "$count"
for node in "${nodes[@]}"; do
  wait_for "the service on $node" 300 "$python" -c \
    "from urllib.request import *; build_opener(ProxyHandler({})).open('http://$node:$bfcl_port/healthz', timeout=5)"
done

"$python" launcher.py --conf "$recipe" -- "ray_kwargs.ray_init.address=$address" "env_service.env_url=[$urls]" \
  "trainer.nnodes=$count" "trainer.n_gpus_per_node=$gpus" "$@" &
launcher=$!
code=0
wait "$launcher" || code=$?
launcher=
exit "$code"
