# Only the BFCL environment service, without torch or verl.
#   docker build -f docker/service.Dockerfile -t seal-service .
#   docker run --rm -p 8082:8082 -e BFCL_TOKEN=... seal-service
FROM python:3.12-slim

WORKDIR /seal
COPY env_service env_service
COPY seal seal
RUN PIP_NO_CACHE_DIR=1 BFCL_CONDA=0 PYTHON=python bash env_service/environments/bfcl/setup.sh \
    && useradd --system --uid 1000 service

# Text of the model drives simulators here, so the process runs as a user who owns nothing.
USER 1000
ENV BFCL_HOST=0.0.0.0 BFCL_PORT=8082
EXPOSE 8082
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8082/healthz', timeout=3)"]
CMD ["bash", "env_service/launch_script/bfcl.sh"]
