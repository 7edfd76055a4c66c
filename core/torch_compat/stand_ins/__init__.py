"""Where torch's stand-ins (FakeTensors) say something else than eager."""
