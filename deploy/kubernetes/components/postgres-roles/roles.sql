-- The three roles of the fleet in a Postgres database of its own. Run it once, in that database, as a superuser; without
-- its last part, also as another owner of the database who may create roles:
--
--   psql -v owner="'…'" -v fleet="'…'" -v autoscaler="'…'" -f deploy/kubernetes/components/postgres-roles/roles.sql DATABASE
--
-- Each argument is the password of a role, in quotes. Then create the Kubernetes secrets with URLs of these roles
-- (docs/operations.md).
\set ON_ERROR_STOP on

-- Owns the tables and changes them; only the migration Job has it.
CREATE ROLE agentmine_owner LOGIN PASSWORD :owner;
-- What producers and consumers are: rows, no tables.
CREATE ROLE agentmine LOGIN PASSWORD :fleet;
-- What the autoscaler is: it reads one view.
CREATE ROLE agentmine_autoscaler LOGIN PASSWORD :autoscaler CONNECTION LIMIT 10;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO agentmine_owner;
GRANT USAGE ON SCHEMA public TO agentmine, agentmine_autoscaler;
-- The administrator of a managed server is no superuser, and may change the defaults only of roles that it is a member of.
GRANT agentmine_owner TO CURRENT_USER;
ALTER DEFAULT PRIVILEGES FOR ROLE agentmine_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO agentmine;
ALTER DEFAULT PRIVILEGES FOR ROLE agentmine_owner IN SCHEMA public
    GRANT USAGE ON SEQUENCES TO agentmine;
REVOKE agentmine_owner FROM CURRENT_USER;

-- The view is made by a migration, so this right is given when it appears.
CREATE FUNCTION agentmine_grant_demand() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('public.demand') IS NOT NULL THEN
        EXECUTE 'GRANT SELECT ON public.demand TO agentmine_autoscaler';
    END IF;
END
$$;
CREATE EVENT TRIGGER agentmine_demand ON ddl_command_end WHEN TAG IN ('CREATE VIEW')
    EXECUTE FUNCTION agentmine_grant_demand();
