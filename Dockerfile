# posttrain on Debian, for any project: tests/operations/project/test_container.py follows these steps in a bare root.
#
#   docker build -t posttrain .
#   docker run --rm -it --user "$(id -u):$(id -g)" -v "$PWD:/project" posttrain run
#
# See docs/platforms.md for extras, another index, a GPU, and the sandbox.
FROM debian:bookworm-slim

# Extras of pyproject.toml, by commas: --build-arg EXTRAS=s3,release
ARG EXTRAS=""
# Where pip looks beside its index, for instance for a torch without CUDA.
ARG PIP_EXTRA_INDEX_URL=""

# The compiler is for pycosat, of which there is no wheel; bubblewrap is the sandbox.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
    bubblewrap ca-certificates gcc git libc6-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/posttrain
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY posttrain posttrain
COPY tasks tasks
COPY flows flows
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/python -m pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS:+[$EXTRAS]}" \
 && rm -rf build posttrain.egg-info

# A home for whoever runs it: the number of a user of the host has no name here.
RUN install --directory --mode 1777 /home/posttrain /project
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/home/posttrain USER=posttrain

WORKDIR /project
ENTRYPOINT ["posttrain"]
CMD ["--help"]
