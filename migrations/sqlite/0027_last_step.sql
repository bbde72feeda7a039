-- An append is one INSERT; this trigger sets the counter in the row of its task. Programs of earlier versions set the counter
-- first, and for them the trigger changes nothing.
CREATE TRIGGER steps_counted AFTER INSERT ON steps
BEGIN
    UPDATE tasks SET last_seq = NEW.seq WHERE id = NEW.task AND last_seq < NEW.seq;
END;
