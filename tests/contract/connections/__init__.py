"""The two carriers of the Agent API against small servers on real sockets. No mocks, and not our simulator."""
