# The daemon, with Claude Code beside it. Harnesses run as the user `agent`; the daemon is root, to be able to do that.

FROM node:22-bookworm-slim AS build
WORKDIR /src
COPY package.json bun.lock bunfig.toml ./
COPY scripts/setup.sh scripts/
RUN sh scripts/setup.sh
COPY . .
RUN npm run build && cp node_modules/@anthropic-ai/claude-agent-sdk-linux-*/claude dist/claude

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --user-group --create-home --shell /bin/bash agent \
    && install -d -o root -g root -m 0711 /var/lib/dispatchd \
    && install -d -o agent -g agent /app
COPY --from=build /src/dist/dispatchd /src/dist/claude /usr/local/bin/
# The state folder lies where the agent cannot put another one in its place.
ENV AGENT_USER=1000:1000 \
    APP_ROOT=/app \
    HOME=/home/agent \
    SHELL=/bin/bash \
    STATE_DIR=/var/lib/dispatchd \
    USER=agent
EXPOSE 9000
# In Kubernetes: HTTP probes (deploy/pod.yaml).
HEALTHCHECK --interval=10s --timeout=2s --start-period=5s CMD ["dispatchd", "probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["dispatchd"]
CMD ["serve"]
