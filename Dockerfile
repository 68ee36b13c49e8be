# CPU:  docker build -t airlock .
# CUDA: docker build -t airlock:cuda --build-arg BASE=nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04 .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN if ! command -v python3 >/dev/null; then \
      apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /src
RUN python3 -m venv /opt/airlock
COPY constraints.txt pyproject.toml README.md LICENSE NOTICE ./
COPY models models
COPY calibration calibration
COPY service service
RUN /opt/airlock/bin/pip install --no-cache-dir -c constraints.txt setuptools \
 && /opt/airlock/bin/pip install --no-cache-dir --no-build-isolation -c constraints.txt '.[postgres]'

FROM ${BASE}
RUN if ! command -v python3 >/dev/null; then \
      apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; \
    fi \
 && useradd --uid 10001 --create-home --shell /usr/sbin/nologin airlock \
 && install -d -o airlock -g airlock /var/lib/airlock
COPY --from=build /opt/airlock /opt/airlock
ENV PATH=/opt/airlock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BENTOML_DO_NOT_TRACK=True \
    AIRLOCK_STATE_DIR=/var/lib/airlock/state
USER airlock
WORKDIR /var/lib/airlock
VOLUME /var/lib/airlock
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:3000/v2/health/ready', timeout=2)"]
# The policies in the image cannot be changed; to swap policies, mount a store and name it with AIRLOCK_POLICIES.
CMD ["airlock", "serve", "--host", "0.0.0.0", "--port", "3000"]
