# The server's parts and the Ollama workers. Mac Studios run natively: Metal does not reach into containers.
FROM python:3.12-slim-trixie AS build
# a compiler for the few packages that have no wheel for the DGX Sparks' ARM processors
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/grader
COPY requirements.lock requirements-sandbox.lock ./
RUN python -m venv /srv/venv \
    && /srv/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
# the Python of students' work, as `make sandbox` makes it
RUN python -m venv --without-pip /srv/venv/sandbox \
    && /srv/venv/bin/pip --python /srv/venv/sandbox/bin/python install --no-cache-dir --no-deps --require-hashes \
    -r requirements-sandbox.lock
COPY . .
RUN /srv/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation \
    --config-settings editable_mode=compat -e .

FROM python:3.12-slim-trixie
# pg_dump and psql for `grader backup` and `grader restore`, not older than the compose file's PostgreSQL
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-client \
    # what `grader sandbox` runs students' work in
    bubblewrap libseccomp2 r-base-core r-cran-irkernel r-cran-testthat r-cran-dplyr r-cran-tidyr r-cran-readr \
    r-cran-stringr r-cran-ggplot2 r-cran-lubridate r-cran-forcats r-cran-purrr r-cran-tibble \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home grader
COPY --from=build /srv/venv /srv/venv
COPY --from=build /srv/grader /srv/grader
RUN install -d -o grader -g grader /srv/grader/var
WORKDIR /srv/grader
ENV PATH=/srv/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER grader
ENTRYPOINT ["grader"]
CMD ["web"]
