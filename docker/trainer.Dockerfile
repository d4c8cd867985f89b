# The trainer with CUDA: verl, vLLM, Ray, flash-attn and the environment service.
#   docker build -f docker/trainer.Dockerfile -t seal-trainer .
#   docker run --rm --gpus all --ipc=host --stop-timeout 660 \
#     -v "$PWD/experiments:/seal/experiments" -v "$PWD/launcher_record:/seal/launcher_record" \
#     -v "$HOME/.cache/huggingface:/root/.cache/huggingface" seal-trainer --conf exp/SEAL.yaml --with-bfcl
# The base has the CUDA compiler, with which vLLM's FlashInfer compiles kernels on first use.
ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
FROM ${BASE}

# The base image fixes the versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential git make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /seal
COPY . .

# A flash-attn wheel (file in the context or URL) to install instead of verl's.
ARG FLASH_ATTN_WHEEL=""
RUN PYTHON=python3 SEAL_CONDA=0 PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 bash install.sh --cuda

ENV PATH=/seal/.venv/bin:$PATH
# No shell in between: `docker stop` signals the launcher itself, which saves a checkpoint (seal.stop_grace_s).
ENTRYPOINT ["python", "launcher.py"]
CMD ["--help"]
