# Images for launcher and workers (one for both): no root, sshd on 2222, one Open MPI, no compiler inside.
#   docker build -t trireme:cpu .
#   docker build -t trireme:cuda --build-arg BACKEND=cuda \
#     --build-arg BUILD_IMAGE=nvidia/cuda:12.6.3-cudnn-devel-ubuntu24.04 --build-arg RUN_IMAGE=nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04 .
# Every step is a line of jobscripts/container/build_image.sh, which tests run without an engine.
# Names of run-time packages are Debian 12's; for another base: --build-arg RUN_PACKAGES="...".
ARG BUILD_IMAGE=debian:bookworm-slim
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
ARG BACKEND=cpu
COPY jobscripts/container /src/jobscripts/container
RUN /src/jobscripts/container/build_image.sh packages build
COPY . /src
RUN /src/jobscripts/container/build_image.sh program /src /opt/trireme ${BACKEND}

FROM ${RUN_IMAGE}
ARG RUN_PACKAGES=""
COPY jobscripts/container /tmp/container
RUN if [ -n "${RUN_PACKAGES}" ]; then apt-get update && apt-get install -y --no-install-recommends ${RUN_PACKAGES} && rm -rf /var/lib/apt/lists/*; \
    else /tmp/container/build_image.sh packages run; fi && /tmp/container/build_image.sh setup / && rm -r /tmp/container
COPY --from=build /opt/trireme /opt/trireme
ENV PATH=/opt/trireme/bin:/usr/local/bin:/usr/bin:/bin \
    TRIREME=/opt/trireme/bin/trireme \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
USER 1000:1000
WORKDIR /home/mpiuser
EXPOSE 2222
CMD ["/opt/trireme/bin/trireme", "help"]
