# What students' work runs in where a container engine is the sandbox (sandbox.backend = "container"):
#
#   docker build -f deploy/sandbox.Dockerfile -t grader-sandbox deploy
#
# and in config.toml: [sandbox] backend = "container", engine = "docker" (or "podman"), image = "grader-sandbox".
# The drivers are bound in at run time, read-only; nothing of Grader is in the image. Nothing in it runs as root,
# may reach the network or write outside of its own /box and /tmp: that is said when a container is started.
FROM debian:trixie-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends \
    coreutils fonts-dejavu-core \
    python3 python3-ipython python3-matplotlib python3-numpy python3-pandas python3-pytest python3-scipy \
    r-base-core r-cran-irkernel r-cran-testthat r-cran-dplyr r-cran-tidyr r-cran-readr r-cran-stringr \
    r-cran-ggplot2 r-cran-lubridate r-cran-forcats r-cran-purrr r-cran-tibble \
    && rm -rf /var/lib/apt/lists/* \
    # programs that take their owner's rights have no place here
    && find / -xdev -perm /6000 -type f -exec chmod a-s {} + \
    && mkdir -p /box /data /grader

WORKDIR /box
USER 65534:65534
CMD ["python3", "--version"]
